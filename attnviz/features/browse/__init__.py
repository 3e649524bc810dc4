"""attnviz browse: attention by keys, in the terminal.

`ask` asks the model, `state` is what is seen, `keys` says what each key does, `draw` makes lines of
a state, `app` is the terminal, `entry` the way in. Only `app` knows textual.

A view of one's own: a field of `State`, a row of `KEYS` and of `STEPS`, and lines in `draw.panes`.
"""
