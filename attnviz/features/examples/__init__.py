"""Small files to try commands with: those of sample_inputs, which a wheel has in this folder."""

FILES = {
    "sentences.txt": "Five English sentences: self --input, heads.",
    "pairs.tsv": "Eight pairs, English and French: cross --input, align.",
    "pairs.gold": "Their word alignments, made by hand: align --score.",
    "pairs.jsonl": "Three pairs with names: cross --input.",
    "notes.txt": "Four passages: sources --context.",
    "reasoning.txt": "A reasoning between <think> and </think>: sources --of output.",
    "notes.csv": "Texts in a table, with labels: self --input --columns.",
    "entities.jsonl": "Two sentences with labels of their words.",
    "relations.conllu": "Sentences with their syntax: heads --treebank.",
    "shapes.png": "A picture of shapes: image.",
    "vowels.wav": "Five vowels, spoken: audio.",
    "vowels.tsv": "When each of them is spoken: audio --times.",
    "worked_examples.json": "Attention by hand, with its results: steps.",
    "watch_decoder.py": "A decoder that learns to spell backwards: watch.",
    "watch_transformer.py": "A transformer that learns to swap: watch.",
    "training_run.py": "A training run with samples of its attention.",
}
"""What each file is, and the command that reads it."""
