"""The parts of an answer to a conversation: reasoning, words, and tool calls."""

from forerun.replies.conversations import Asked, Conversations
from forerun.replies.marks import PARSERS, ReasoningMarks
from forerun.replies.reasoning import Reasoning
from forerun.replies.reply import WORDS_ALONE, Piece, Reply, ReplyForm, ReplyReader, Thoughts

__all__ = [
    "PARSERS",
    "WORDS_ALONE",
    "Asked",
    "Conversations",
    "Piece",
    "Reasoning",
    "ReasoningMarks",
    "Reply",
    "ReplyForm",
    "ReplyReader",
    "Thoughts",
]
