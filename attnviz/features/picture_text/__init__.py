"""Models that read pictures and a text: what each word looks at, found by probes."""
