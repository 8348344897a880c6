"""Text for people: tables, HTML, the live line of a notebook, and words of messages."""
