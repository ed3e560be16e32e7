"""Measurements of this project and its peers, as ratios with their spread.

Whole programs:

    python -m benchmarks.compare         this project and its peers, images/s
    python -m benchmarks.same_steps      losses, rates and variables beside a peer's
    python -m benchmarks.single_gpu      dtypes and layouts on a GPU, and a bare graph
    python -m benchmarks.memory          peak memory of each mode, and a peer's
    python -m benchmarks.startup         from the command to the first step; many towers
    python -m benchmarks.data_sources    examples/s of sources of data and of loaders
    python -m benchmarks.input           JPEGs/s of the input alone, and of peers
    python -m benchmarks.reduce          the reductions alone, against a copy of memory
    python -m benchmarks.scaling         1 to 64 towers that wait: what each mode adds
    python -m benchmarks.pipelines compute  stages; schedules, balance, memory, build
    python -m benchmarks.cluster_speed   a cluster on this machine and its peers
    python -m benchmarks.chaos           tasks killed at random: recovery time and bits
    python -m benchmarks.elastic         the same of elastic runs; frozen, cut off
    python -m benchmarks.goodput         a simulation of 1 to 1,000 workers that fail

Single mechanisms, of the folder `mechanisms/`:

    python -m benchmarks.mechanisms.checkpoints        what a checkpoint costs a step
    python -m benchmarks.mechanisms.epoch_order        time and memory of the order
    python -m benchmarks.mechanisms.evaluation_memory  what evaluations leave allocated
    python -m benchmarks.mechanisms.sharding           a classifier over K devices
    python -m benchmarks.mechanisms.step_overhead      the loop, against a bare loop
    python -m benchmarks.mechanisms.transport          bytes/s from ps tasks

On a shared machine the speed of one run says little.  So the systems compared run in
turn for several rounds; a ratio is taken within each round, and its median, minimum and
maximum over the rounds are reported.
"""
