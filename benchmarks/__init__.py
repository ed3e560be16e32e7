"""Measurements, side by side in one sitting, as ratios with their spread.

python -m benchmarks.compare        this project and its peers, images/s
python -m benchmarks.step_overhead  the loop and its hooks, against a bare loop
python -m benchmarks.reduce         the reductions alone, against a copy of memory
python -m benchmarks.startup        from the command to the first step; many towers
python -m benchmarks.scaling        1 to 64 towers that wait: what each mode adds
python -m benchmarks.memory         peak memory of each mode, beside tf_cnn_benchmarks

On a shared machine one number says little: neighbours come and go.  So whatever is to
be compared runs in turn, each run in a process of its own, for several rounds; a ratio
is taken within each round, and reported as its median over the rounds with the least
and the most.
"""
