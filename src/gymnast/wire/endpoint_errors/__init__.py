"""What a model endpoint means by an error: one table for retries, failure kinds, exit codes, checks and doctor.

`diagnose` maps a reply to a `Cause`; `MEANINGS` says what each cause means and what to do about it.
"""

from gymnast.wire.endpoint_errors.causes import MEANINGS as MEANINGS
from gymnast.wire.endpoint_errors.causes import Cause as Cause
from gymnast.wire.endpoint_errors.causes import Meaning as Meaning
from gymnast.wire.endpoint_errors.diagnosis import Certainty as Certainty
from gymnast.wire.endpoint_errors.diagnosis import Diagnosis as Diagnosis
from gymnast.wire.endpoint_errors.diagnosis import cause_of as cause_of
from gymnast.wire.endpoint_errors.diagnosis import diagnose as diagnose
from gymnast.wire.endpoint_errors.diagnosis import diagnose_transport as diagnose_transport
from gymnast.wire.endpoint_errors.diagnosis import error_message as error_message
from gymnast.wire.endpoint_errors.diagnosis import find_error as find_error
from gymnast.wire.endpoint_errors.diagnosis import is_context_overflow as is_context_overflow
from gymnast.wire.endpoint_errors.diagnosis import with_cause as with_cause
from gymnast.wire.endpoint_errors.quoting import mask_quoted as mask_quoted
