"""CPU offload: what waits lies in host memory, and comes to the device when its turn is there.

`--sharding "stage2 offload"` keeps AdamW's moments, the float32 master weights and the reduced gradients in the host,
`"stage3 offload"` every slice of a parameter, too, frozen ones included. The host only keeps: all arithmetic stays on
the device, parameter by parameter, in the order and with the kernels of the run without offload, so the losses are the
same to the bit. (Upstream computes AdamW on the host instead: its stage 2 takes float16 alone and no data parallel
group, its stage 3 goes on from stale copies of weights that were gathered but not updated.)

    host_memory.py          host memory, and copies between it and the device
    streamed_optimizer.py   the update, and the unscaling of a loss scale, one parameter at a time
    group_sharded.py        gradients of stage 2, slices and gradients of stage 3; puts all of this into a Trainer's run

On the device remain: the parameters of stage 2; gradients that lie in sharding's own buffers (of stage 2 those of the
smaller tensors, at most 2**23 numbers a rank; of stage 3 those of the tensors that it does not slice, which remain
themselves, too); numbers of one element. During an update: what belongs to the parameter being updated and the next.

Tested on CPUs, where host memory is NumPy's and what Paddle's allocator counts stands for the device. On GPUs host
memory is page-locked and copies run on a stream of their own beside the computation; that has not been run.
"""
