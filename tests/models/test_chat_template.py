"""Chat templates: what Hugging Face offers them, and the sandbox around them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from forerun.errors import InvalidTemplate
from forerun.models.text.chat_template import ChatTemplate, template_text

MESSAGES = [{"role": "user", "content": "a <b> é"}, {"role": "assistant", "content": "c"}]


def _render(source: str, **variables: object) -> str:
    return ChatTemplate(source).render(MESSAGES, True, **variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}\n{{ m.role }}\n{% endfor %}", "user\nassistant\n"),
        ("  {% if add_generation_prompt %}\nyes{% endif %}", "yes"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "a <b> é"}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% for m in messages %}{% break %}{% endfor %}x", "x"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}", "c"),
        ("{{ 'a' ~ 1 ~ none }}{{ 'ab' * 2 }}{{ 2 ** 3 }}{{ 7 % 4 }}", "a1Noneabab83"),
        ("{{ '%s-%02d' % ('x', 3) }}{{ '{:>3}'.format('y') }}", "x-03  y"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{{ 'abab' | replace('a', 'xy') }}{{ ' z '.strip() }}", "xybxybz"),
        ("{{ extra }}{{ missing }}", "here"),
        ("{% if tools %}tools{% else %}none{% endif %}", "none"),
        ("{% set ns = namespace(x='') %}{% set ns.x = ns.x + 'q' %}{{ ns.x }}", "q"),
        ("{{ range(3) | list }}", "[0, 1, 2]"),
    ],
)
def test_what_templates_use(source: str, expected: str) -> None:
    assert _render(source, extra="here") == expected


def test_the_date_is_todays() -> None:
    assert _render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


def test_a_template_may_refuse_messages() -> None:
    with pytest.raises(InvalidTemplate, match="refuses these messages: roles must alternate"):
        _render("{{ raise_exception('roles must alternate') }}")


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['os'].system('id') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ ('' | attr('__class__')).__mro__ }}",
    "{{ (messages | map(attribute='__class__') | first).__mro__ }}",
    "{% set _ = messages.append(1) %}",
    "{% set _ = messages[0].update({'role': 'x'}) %}",
    "{{ messages.clear() }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_escapes_are_stopped(source: str) -> None:
    with pytest.raises(InvalidTemplate):
        _render(source)


FLOODS = [
    "{{ 'a' * 999999999 }}",
    "{{ 99999999999 * 'a' }}",
    "{{ [0] * 999999999 }}",
    "{{ 10 ** 10 ** 10 }}",
    "{{ 'a'.ljust(999999999) }}",
    "{{ 'a' | center(999999999) }}",
    "{{ 'a' | indent(999999999) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%999999999d' | format(1) }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
    "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='aa') %}{% for i in range(60) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
]


@pytest.mark.parametrize("source", FLOODS)
def test_floods_are_stopped_soon(source: str) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidTemplate):
        _render(source)
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("source", ["{% set x = 'a'.upper() %}", "{% set x = 1 + 1 %}", "text"])
def test_time_is_checked_at_every_operation(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr("forerun.models.text.template_sandbox.MAX_SECONDS", -1.0)
    with pytest.raises(InvalidTemplate, match="ran for more than"):
        _render(source)


@pytest.mark.parametrize("source", ["{{", "{% for %}", "{% unknown %}", "{{ x | nofilter }}"])
def test_broken_templates_are_sentences(source: str) -> None:
    with pytest.raises(InvalidTemplate):
        _render(source)


def test_a_template_that_fails_says_on_what() -> None:
    with pytest.raises(InvalidTemplate, match="failed on these messages"):
        _render("{{ messages[0].content + 1 }}")


def test_what_a_template_reads() -> None:
    source = "{% set a = b %}{{ a }}{% for m in messages %}{{ m.c }}{% endfor %}{{ range(3) }}"
    assert ChatTemplate(source).reads == {"b", "messages"}


def test_a_template_is_its_text_or_its_file(tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text("{{ messages }}")
    assert template_text("{% set a = 1 %}") == "{% set a = 1 %}"
    assert template_text(str(file)) == "{{ messages }}"
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidTemplate, match="cannot be read: it is not text; give a jinja2 file"):
        template_text(str(file))


@pytest.mark.parametrize("given", ["no/such.jinja", "", "x" * 5000, "\0", 5, Path("chat.jinja")])
def test_what_is_neither_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTemplate, match="is neither a jinja2 template nor a file; give"):
        template_text(given)


def test_calls_and_answers_of_tools_are_the_templates_own() -> None:
    """A message with a call has no content, and a tool may answer with any value."""
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [{"name": "weather"}]},
        {"role": "tool", "content": {"degrees": 21}},
    ]
    source = (
        "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].name }}"
        "{% elif m.content is mapping %}{{ m.content.degrees }}{% endif %} {% endfor %}"
    )
    assert ChatTemplate(source).render(messages, add_generation_prompt=False) == "weather 21 "
