"""Openings of prompts of many kinds, which the target continues, and requests about a text."""

from __future__ import annotations

from typing import Final

# Beginnings of a user's turn; the target writes the rest of it.
QUESTIONS: Final = (
    "What is", "Who", "When did", "Where", "Why do", "How does", "How can I", "Which",
    "Explain", "Describe", "Compare", "List", "Give me", "Can you", "I want to", "Tell me about",
    "Write a short story about", "Write a poem about", "Write an email", "Write a blog post about",
    "Imagine you are", "Pretend to be", "Act as", "Suggest", "Create a", "Design a", "Plan a",
    "Write a Python function that", "Write a program", "Fix this code:\n\n```python\ndef ",
    "What does this function do?\n\n```python\ndef ", "Complete this function:\n\ndef ",
    "Implement", "Solve for x:", "Calculate", "Find the value of", "A farmer has", "A shop sells",
    "If a train", "A school has", "A box contains", "Tom has", "Maria buys", "Anna earns $",
    "There are", "A baker", "In a class of", "It takes", "A recipe needs", "Two friends",
    "Translate this sentence from German into English: Die", "What is this in English? Ein",
    "Put this German text into English: Der", "From German into English: Im",
    "Translate into English: Das", "Translate into English: Mit", "Translate into English: Sie",
    "Translate into English: Nach", "Translate to French:", "Translate to Spanish:",
    "Rewrite this sentence:", "Correct the grammar:", "Classify", "Extract", "Is it true that",
)  # fmt: skip

# A user's turn, with one of the target's earlier answers for the braces.
ABOUT_A_TEXT: Final = (
    "Summarize this text in a few sentences:\n\n{}",
    "Summarise the following article.\n\n{}\n\nSummary:",
    "{}\n\nWhat is the main point of this text?",
    "{}\n\nGive a short summary of the text above.",
    "Use these passages to answer.\n\n{}\n\nQuestion: what do they say, and about whom?",
    "Read this:\n\n{}\n\nList the most important facts.",
    "Here is some background:\n\n{}\n\nExplain it in simple words.",
    "Rewrite this text in other words:\n\n{}",
    "Repeat this text, but make it shorter:\n\n{}",
    "Correct all mistakes in this text:\n\n{}",
)

# Beginnings of a text without turns.
PLAIN: Final = (
    "Once upon a time, there was a", "Once upon a time, in a", "One day, a little", "The",
    "In the year", "It was a", "She", "He", "They", "A", "There was once a", "Lily", "Ben and",
    "Chapter 1\n\n", "# ", "def ", "import ", "The history of", "Scientists", "Long ago",
)  # fmt: skip
