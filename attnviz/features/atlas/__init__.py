"""What each head does over a corpus, on one page and in one picture."""
