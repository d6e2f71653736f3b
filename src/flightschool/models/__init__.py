"""A plain text-model client for judges and simulated users: the OpenAI chat format over HTTP.

Policies under training are not asked this way: they run in ``engines``, token-exact. ``httpx2`` is imported when a
client is made.
"""

from flightschool.models.client import ChatClient, Retries
from flightschool.models.endpoint import (
    CallCompletion,
    ChatModel,
    Completion,
    Endpoint,
    RawCall,
    RefusedRequestError,
    parse_endpoint,
)
from flightschool.models.loopback import Cassette, LoopbackServer, Reply, chat_reply

__all__ = [
    "CallCompletion",
    "Cassette",
    "ChatClient",
    "ChatModel",
    "Completion",
    "Endpoint",
    "LoopbackServer",
    "RawCall",
    "RefusedRequestError",
    "Reply",
    "Retries",
    "chat_reply",
    "parse_endpoint",
]
