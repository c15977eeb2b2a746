"""Both ends of the channel between a notebook and the sweep that runs it; stdlib only.

In the notebook each call sends its point to a socket of the sweep, from whichever thread or process
it is made, and shows one small display, updated in place. Where there is no socket the display
carries the point, so that it is in the file all the same; run by hand, the calls show the same
display and talk to nobody.
"""

from .calls import (
    TrialInfo,
    TrialPruned,
    TrialStopped,
    on_stop,
    report,
    score,
    should_stop,
    trial,
)
from .channel import Channel, Mailbox
from .messages import (
    KERNEL_VARIABLE,
    MIME,
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    TRIAL_VARIABLE,
    Point,
    StopReason,
    decode_float,
    encode_float,
)

__all__ = [
    "KERNEL_VARIABLE",
    "MIME",
    "REPORTS_VARIABLE",
    "STOP_VARIABLE",
    "TRIAL_VARIABLE",
    "Channel",
    "Mailbox",
    "Point",
    "StopReason",
    "TrialInfo",
    "TrialPruned",
    "TrialStopped",
    "decode_float",
    "encode_float",
    "on_stop",
    "report",
    "score",
    "should_stop",
    "trial",
]
