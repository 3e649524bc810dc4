"""What the heads of a model do over a whole corpus, in aggregates that add up.

A text's attention is read once and forgotten; what stays of it is numbers a head. Aggregates of
parts of a corpus merge into those of the whole, exactly: in any order, in any grouping, to the last
bit.

How cost grows, for H heads, texts of T tokens, M measures, R replicates and the W most frequent
words:

- a text costs O(H · T²) to read and O(H · M · R) for the intervals;
- memory is O(H · (M · R + W²)), however many texts there are: `WORD_BYTES` bounds the second part,
  and the word counts before it (`counts.py`) hold O(1 / ε · log(ε · words)) words;
- merging costs as much as reading through that memory once.
"""
