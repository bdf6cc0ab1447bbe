"""The CPU, presented as one of the "custom devices" that upstream supports.

Modules of fleet accept gpu, xpu and whatever paddle.device.get_all_custom_device_type() names, and read a
device's number from "type:number". Where "cpu" is such a type, their own branch for custom devices copies
with Tensor._copy_to(place), which really copies; Tensor.cpu() and Tensor.to("cpu") of a CPU tensor are aliases.
"""

from paddle.base import core

from launch.upstream.module_view import ModuleView


def with_cpu_as_custom_device(paddle) -> ModuleView:
    """The module paddle (or a view of it) as seen by a module that knows custom devices."""
    return ModuleView(
        paddle,
        get_device=lambda: "cpu:0",
        CustomPlace=lambda device_type, device_id: core.CPUPlace(),
        device=ModuleView(paddle.device, get_all_custom_device_type=lambda: ["cpu"]),
    )
