"""attnviz browse: attention by keys, in the terminal.

`state` is what is seen and what a key makes of it, `draw` makes lines of it, `ask` asks the model
again, `app` is the terminal, `command` the way in. Only `app` knows textual.
"""
