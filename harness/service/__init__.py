"""The environments as a service, in the AgentRL protocol: a controller, workers, and a client that plays through them.

`protocol` holds what goes over the wire; `controller` and `worker` are state and rules, each with a `*_web` module that
puts it behind HTTP; `episode`, `hosts` and `pool` are where sessions are played; `running` starts both in one process.
"""
