"""attnviz why: why a head looks there, and after which layer an answer appears."""
