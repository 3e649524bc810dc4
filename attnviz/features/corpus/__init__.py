"""Statistics of every head over a whole corpus.

Each text is read once; only numbers for each head are kept. Statistics of consecutive parts of a
corpus merge in order, and the same parts always give the same bytes.

Cost for H heads, texts of T tokens, M measures and the W most frequent words:

- time for each text: O(H · T²) beside the model, and O(H · M) for the intervals;
- memory: O(H · (M + W²)) for any number of texts (W is set so that pairs take at most 32 MiB);
  counting words first takes O(1 / ε · log(ε · words)), see `words.py`;
- an atlas also keeps at most 44 texts for each head, with their words;
- a merge, and a checkpoint, go through that memory once.

`benchmarks/corpus.py` adds up a million records.
"""
