"""RMSNorm as one operator: of the module fused_ln, else Paddle's own. launch/devices/fused_ln.py says what is built."""

from typing import Any

from launch.devices.fused_ln import BUILD, PADDLES_OWN
from launch.families.parameters import head_size
from launch.families.registry import parameters
from launch.switches.switch import Decision, Obstacle, Switch, SwitchCase, first_of_ranks

RECORD = "custom_ops/fused_rms_norm/setup.py: the record of the build"


class FusedRMSNorm(Switch):
    """The switch of the fused operator."""

    flag = "use_fused_rms_norm"
    subject = "RMSNorm"
    feature = "fused RMSNorm"
    instead = "the framework's own RMSNorm"
    remedy = BUILD
    cases = (
        Obstacle(
            lambda case: not case.family.fused_rms_norm,
            "paddlenlp's code of {case.family.model_type} never calls it",
            "launch/families, the family's module: fused_rms_norm",
        ),
        Obstacle(lambda case: case.fused_ln is None, f"the module fused_ln is not built: {BUILD}", "importlib"),
        Obstacle(
            lambda case: not case.built.has_record and not case.compute_capability,
            f"the module fused_ln in {{case.fused_ln.directory}} is not ours: {BUILD}",
            "that of PaddleNLP's external operators is for cards alone",
        ),
        Obstacle(
            lambda case: case.built.has_record and case.built.paddle != case.paddle,
            f"the module fused_ln was built for Paddle {{case.fused_ln.paddle}}, here is {{case.paddle}}: {BUILD}",
            RECORD,
        ),
        Obstacle(
            lambda case: case.built.has_record and case.compute_capability is not None and not case.built.cuda,
            f"the module fused_ln was built without CUDA: {BUILD}, where nvcc is found",
            RECORD,
        ),
        Obstacle(
            lambda case: (
                case.built.has_record
                and case.compute_capability is not None
                and case.capability < case.built.architectures[0]
            ),
            f"{{case.card}}, CUDA {{case.fused_ln.cuda}} builds it for {{case.fused_ln.oldest}} and newer; with an "
            f"older CUDA: {BUILD} ARGS=--remove, then CUDA_HOME=/usr/local/cuda-12.6 {BUILD}",
            RECORD,
        ),
    )

    @staticmethod
    def substituted(case: SwitchCase) -> bool:
        """Return True if Paddle's own operator can take the place of fused_ln."""
        return case.family.fused_rms_norm and case.compute_capability is not None

    def expected(self, values: Any, cases: list[SwitchCase]) -> Decision:
        """Return the decision by the table; where fused_ln cannot be used, cards may take Paddle's own operator."""
        reason, setting = self.first_obstacle(cases), self.setting(values)
        if reason and setting in ("auto", "on") and all(map(self.substituted, cases)):
            return Decision(True, f"fused RMSNorm: {PADDLES_OWN}, if the start finds it right ({reason})")
        return self.decide(setting, reason, cases[0])

    def planned(self, values: Any, case: SwitchCase) -> bool:
        """Return True if a plan counts on it: cards have one operator or the other."""
        setting = self.setting(values)
        return setting == "required" or (setting != "off" and self.substituted(case))

    def start(self, values: Any, case: SwitchCase) -> Decision:
        """Return the decision, and switch on Paddle's own operator where fused_ln cannot be used."""
        from launch.switches import kernel_checks

        found, setting = first_of_ranks(self.obstacle(case)), self.setting(values)
        if not found and setting != "off":
            found = first_of_ranks(self._fault("the module fused_ln", kernel_checks.fused_ln_rms_norm, case))
        if found and setting in ("auto", "on") and self.substituted(case):
            of_paddle = first_of_ranks(self._fault(PADDLES_OWN, kernel_checks.paddle_rms_norm, case))
            if not of_paddle:
                kernel_checks.use_paddle_rms_norm()
                return Decision(True, f"fused RMSNorm: on, by {PADDLES_OWN} ({found})")
            found = f"{found}; {of_paddle}"
        return self.decide(setting, found, case)

    def _fault(self, name: str, rms_norm: Any, case: SwitchCase) -> str:
        """Return what is wrong with an operator in the sizes and dtypes of the run; "" where nothing is."""
        from launch.switches import kernel_checks

        # Under O1 weights are float32, outputs of layers are not.
        dtypes = (case.dtype, case.dtype if case.level == "O2" else "float32")
        if case.float32_norms:
            dtypes = ("float32", "float32")
        sizes = [(case.config["hidden_size"], kernel_checks.ROWS)]
        if any(parameter.module == "q_norm" for parameter in parameters(case.config)):
            sizes.append((head_size(case.config), kernel_checks.HEAD_ROWS))
        faults = (kernel_checks.rms_norm_fault(name, rms_norm, size, dtypes, rows) for size, rows in sizes)
        return next(filter(None, faults), "")


FUSED_RMS_NORM = FusedRMSNorm()
