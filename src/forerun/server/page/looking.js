// Shows the token that the user points at: a card beside it, and its round in the panel.

import { byId } from "./dom.js";
import { roundDetails, tokenCard } from "./round.js";

export class Looking {
  /** The card stays within `bounds`, so that it never covers the panel with the tree. */
  constructor(bounds) {
    this._bounds = bounds;
    this._card = byId("card");
    this._answer = null;
  }

  /** At no token where `index` is null. */
  look(answer, index) {
    if (this._answer !== answer) this._answer?.deselect();
    const isAtOne = index !== null && answer.tokens.rounds.length > 0;
    this._answer = isAtOne ? answer : null;
    document.body.classList.toggle("looking", isAtOne);
    byId("round-hint").hidden = isAtOne;
    this._card.hidden = !isAtOne;
    byId("round").replaceChildren();
    if (!isAtOne) return answer?.deselect();
    byId("round").append(roundDetails(answer.tokens, index));
    this._card.replaceChildren(tokenCard(answer.tokens, index));
    this._place(answer.spanOf(index).getClientRects()[0]);
    // By keyboard it is said aloud; a mouse passes over too many.
    if (document.activeElement === answer.element) byId("announce").textContent = this._card.textContent;
  }

  /** The card alone: the panel keeps what it shows. */
  hide() {
    this._card.hidden = true;
  }

  /** Under the token, or over it where there is no room below. */
  _place(token) {
    const { offsetWidth: width, offsetHeight: height } = this._card;
    const right = this._bounds.getBoundingClientRect().right;
    const left = Math.max(8, Math.min(token.left, right - width - 8));
    const under = token.bottom + 8;
    const top = under + height > innerHeight - 8 ? token.top - height - 8 : under;
    Object.assign(this._card.style, { left: `${left}px`, top: `${Math.max(8, top)}px` });
  }
}
