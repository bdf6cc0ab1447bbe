"""CPU offload: tensors are in host memory between their uses, and on the device while they are used.

`--sharding "stage2 offload"` keeps AdamW's moments, the float32 master weights and the reduced gradients in the host,
`"stage3 offload"` also every slice of a parameter, frozen ones included. All arithmetic stays on the device, parameter
by parameter, in the order and with the kernels of the run without offload, so the losses are the same to the bit.
(Upstream computes AdamW on the host instead: its stage 2 takes float16 alone and no data parallel group, its stage 3
continues from stale copies of weights that were gathered but not updated.)

    host_memory.py          host memory, and copies between it and the device
    streamed_optimizer.py   the update, and the unscaling of a loss scale, one parameter at a time
    activations.py          inputs of recomputed layers: `--offload activations`, with any stage of sharding or none
    embedding.py            a frozen word embedding: `--offload_embedding 1`
    group_sharded.py        gradients of stage 2, slices and gradients of stage 3; puts all of this into a Trainer's run

These stay on the device: the parameters of stage 2; gradients in sharding's own buffers (stage 2: those of the smaller
tensors, at most 2**23 elements a rank; stage 3: those of the tensors that it does not slice, and these tensors);
tensors of one element. During an update: the tensors of the parameter being updated and of the next one.

Tested on CPUs, where host memory is NumPy's and the memory of Paddle's allocator stands for the device. On GPUs host
memory is page-locked and copies run on a stream of their own beside the computation; that has not been run.
"""
