"""A plain text-model client for judges, simulated users and foreign candidates: OpenAI's and Anthropic's formats.

Policies under training are not asked this way: they run in ``engines``, token-exact. ``httpx2`` is imported when a
client is made.
"""

from flightschool.models.client import ChatClient, Retries
from flightschool.models.endpoint import (
    ANTHROPIC,
    OPENAI,
    CallCompletion,
    ChatModel,
    Completion,
    Endpoint,
    RawCall,
    RefusedRequestError,
    parse_endpoint,
)
from flightschool.models.loopback import Cassette, LoopbackServer, Reply, chat_reply, message_reply
from flightschool.models.messages import MessagesClient, client_of, usual_key_env

__all__ = [
    "ANTHROPIC",
    "OPENAI",
    "CallCompletion",
    "Cassette",
    "ChatClient",
    "ChatModel",
    "Completion",
    "Endpoint",
    "LoopbackServer",
    "MessagesClient",
    "RawCall",
    "RefusedRequestError",
    "Reply",
    "Retries",
    "chat_reply",
    "client_of",
    "message_reply",
    "parse_endpoint",
    "usual_key_env",
]
