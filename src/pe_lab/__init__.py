"""Position in Transformers, proved, measured, debugged."""
