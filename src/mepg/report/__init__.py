"""Tables, figures and a page about any runs."""
