"""The modes of `--variable_update`: where variables are and how they are updated."""
