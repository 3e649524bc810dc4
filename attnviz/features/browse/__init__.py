"""attnviz browse: attention by keys, in the terminal.

`state` is what is seen, `ask` asks the model again, `keys` says what each key does, `draw` makes
lines of a state, `app` is the terminal, `command` the way in. Only `app` knows textual.

A view of one's own: a field of `State`, a row of `KEYS` and of `STEPS`, and lines in `draw.panes`.
"""
