"""The studio: a local web application over a folder of runs, live and searchable. Reads runs; writes only annotations.

`gymnast view` starts it. The pages are in `web/`, plain ES modules that the server sends as they are.
"""
