"""In-graph multi-GPU training: one client, one `tf.Graph`, one tower per GPU.

The words, and the module where each lives:

* tower: one copy of the model's operations on one device (`compute.tower`);
* task, cluster: a process with a server, and all that train together
  (`layout.cluster`);
* placement: which device holds what (`layout.placement`);
* reduction: the towers' gradients become their mean (`gradients.reduction`);
* variable update: where variables live and how gradients reach them
  (`updates.variable_update`);
* position: how many examples of the input stream were consumed (`data.inputs`).

`graph` puts the parts together, `session.loop` runs the session, `train` is the main.
"""
