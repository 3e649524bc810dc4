"""What `attnviz.attend(messages)` returns: the parts of a conversation."""

from __future__ import annotations

from functools import cached_property

from attnviz.commands.arguments import in_evaluation
from attnviz.commands.findings import CollectedReport, Findings
from attnviz.core.options import Options
from attnviz.features.chat.command import check_choice, report_chats, wants_maps
from attnviz.runs.pipeline import AttentionRequest, Result
from attnviz.storage.texts import Text


class ChatFindings(Findings):
    """The parts of a chat, with table, picture "parts" and page; `.value` is a `ChatReport`."""

    again: AttentionRequest
    options: Options

    @cached_property
    def attention(self) -> Result:
        """The attention of every token of the conversation, computed when it is first asked for."""
        return self.again(self.options.choice)


def attend_chat(chat: Text, options: Options, again: AttentionRequest) -> ChatFindings | None:
    """The parts of a conversation; None where the options are about maps of all tokens."""
    if wants_maps(options):
        return None
    check_choice(options)
    report = CollectedReport("attend", "chat", options)
    findings = report.findings = ChatFindings("attend", "chat")
    findings.again, findings.options = again, options
    with in_evaluation(options.origin.model):
        report_chats([chat], options, report)
    return findings
