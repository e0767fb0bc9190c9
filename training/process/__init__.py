"""Parts of a run in processes of their own: the learner, the engine and players, beside the collector's event loop.

    parent.Process      owns one child: its calls, its death, its silence, its end
    child               what the child runs: one object, whose methods are called by message
    wire                frames over a socket pair that both inherit, and errors that stay what they are
    learner, engine, players    the objects, and what the loop sees of them
    kept                what is started again where it died: engines and players

Decided here: a child holds one object and answers calls of its methods; whoever has something else to carry calls (an
actor on another machine, for one) gives a `Caller` of its own, and the objects stay as they are. Both ends of the wire
are this program, started by the same person, and nobody else can open the socket pair: so what crosses it is pickled,
by us at either end; what a model writes is in it as numbers and strings.
"""
