"""What the heads of a model do over a whole corpus, in aggregates that add up.

A text's attention is read once and forgotten; what stays of it is numbers a head. Aggregates of
consecutive parts of a corpus merge, in order, into those of the whole: always the same parts give
the same bytes.

How cost grows, for H heads, texts of T tokens, M measures, R replicates and the W most frequent
words:

- a text costs O(H · T²) beside its model, and O(H · M · R) for the intervals (72 heads and ten
  tokens: about 3 ms, half of it the measures);
- memory is O(H · (M · R + W²)), however many texts there are (72 heads: 4 MiB of sums, at most 32
  of pairs, the bound that sets W); counting words before takes O(1 / ε · log(ε · words)), see
  `words.py`;
- merging costs as much as going through that memory once, and so does a checkpoint.

`tests/benchmarks/corpus.py` adds up a million records.
"""
