"""Measurements of this project and its peers, as ratios with their spread.

python -m benchmarks.compare         this project and its peers, images/s
python -m benchmarks.same_steps      losses, rates and variables, and those of
                                     tf_cnn_benchmarks
python -m benchmarks.single_gpu      dtypes and layouts on a GPU, and a bare graph
python -m benchmarks.memory          peak memory of each mode, and tf_cnn_benchmarks'
python -m benchmarks.checkpoints     what a step loses to a checkpoint, with and
                                     without a thread
python -m benchmarks.step_overhead   the loop and its hooks, against a bare loop
python -m benchmarks.startup         from the command to the first step; many towers
python -m benchmarks.data_sources    examples/s of sources of data, and other loaders'
python -m benchmarks.epoch_order     time and memory of the order of an epoch
python -m benchmarks.evaluation_memory  memory that each evaluation leaves behind
python -m benchmarks.reduce          the reductions alone, against a copy of memory
python -m benchmarks.scaling         1 to 64 towers that wait: what each mode adds
python -m benchmarks.pipelines compute  stages: speed-up; also balance, memory, build
python -m benchmarks.waiting_stages  the schedules alone, on stages that wait
python -m benchmarks.sharding        a classifier spread over K devices
python -m benchmarks.cluster_speed   a cluster on this machine and its peers, images/s
python -m benchmarks.transport       bytes/s from ps tasks, against a raw socket
python -m benchmarks.chaos           tasks killed at random: recovery time, bits lost

On a shared machine the speed of one run says little.  So the systems compared run in
turn for several rounds; a ratio is taken within each round, and its median, minimum and
maximum over the rounds are reported.
"""
