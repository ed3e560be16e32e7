"""In-graph multi-GPU training: one client, one `tf.Graph`, one tower per GPU.

The words, and the module where each lives:

* tower: one copy of the model's operations on one device (`tower`);
* task, cluster: a process with a server, and all that train together (`cluster`);
* placement: which device holds what (`placement`);
* reduction: the towers' gradients become their mean (`reduction`);
* variable update: where variables live and how gradients reach them
  (`variable_update`);
* position: how many examples of the input stream were consumed (`inputs`).

`graph` puts the parts together, `loop` runs the session, `train` is the main.
"""
