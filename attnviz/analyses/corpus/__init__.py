"""What the heads of a model do over a whole corpus, in aggregates that add up.

A text's attention is read once and forgotten; what stays of it is numbers a head. Aggregates of
consecutive parts of a corpus merge, in order, into those of the whole: always the same parts give
the same bytes.

How cost grows, for H heads, texts of T tokens, M measures and the W most frequent words:

- a text costs O(H · T²) beside its model, and O(H · M) for the intervals;
- memory is O(H · (M + W²)), however many texts there are (at most 32 MiB of pairs, the bound that
  sets W); counting words before takes O(1 / ε · log(ε · words)), see
  `words.py`;
- an atlas keeps at most 44 texts a head beside that, and their words;
- merging costs as much as going through that memory once, and so does a checkpoint.

`benchmarks/corpus.py` adds up a million records.
"""
