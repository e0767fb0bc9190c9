"""What people look at: the local web viewer, and the pages and plots that reports and boards share with it.

Decided here: pages are rendered by the server from templates that escape everything; a little plain JavaScript adds
keys, sorting and live update. Nothing is built, nothing is fetched from elsewhere.
"""
