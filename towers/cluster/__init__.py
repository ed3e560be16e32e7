"""The processes of a cluster and what they say to each other beside the graph."""
