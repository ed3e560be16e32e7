"""The processes of a cluster, and their messages outside of the graph."""
