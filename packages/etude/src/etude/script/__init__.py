"""What a script passes to :class:`~etude.Trainer`: read, checked, and described in the words of a config."""
