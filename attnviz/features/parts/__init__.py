"""--rows and --window of a model that reads texts whole: parts of its maps."""
