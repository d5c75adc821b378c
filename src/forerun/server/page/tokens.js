// Which characters of an answer each token brought, and how the token came about.

/**
 * The text is the server's: it comes in whole characters and may wait for a stop string. Tokens
 * come with their bytes, and are laid over the text as far as it is there.
 */
export class Tokens {
  constructor() {
    this.text = "";
    this.list = []; // { start, end, round, place, origin, logprob }
    this.rounds = [];
    this.isDone = false;
    this._pieces = []; // what each token spells
    this._numPlaced = 0;
    this._decoder = new TextDecoder();
  }

  get placed() {
    return this._numPlaced;
  }

  /** One choice of a chunk, as /v1/chat/completions streams it; returns its rounds. */
  add(choice) {
    const before = this.rounds.length;
    this.text += choice.delta?.content ?? "";
    const logprobs = choice.logprobs?.content ?? [];
    let nth = 0;
    for (const round of choice.forerun?.trace ?? []) {
      this.rounds.push(slim(round));
      round.emitted.forEach((emitted, place) => {
        const known = logprobs[nth++];
        const bytes = known ? Uint8Array.from(known.bytes) : new TextEncoder().encode(emitted.token);
        this._pieces.push(this._decoder.decode(bytes, { stream: true }));
        this.list.push({
          start: null,
          end: null,
          round: this.rounds.length - 1,
          place,
          origin: emitted.origin,
          logprob: known?.logprob ?? null,
        });
      });
    }
    this._place();
    return this.rounds.slice(before);
  }

  finish() {
    this.isDone = true;
    this._place();
  }

  _place() {
    for (; this._numPlaced < this.list.length; this._numPlaced++) {
      const start = this.list[this._numPlaced - 1]?.end ?? 0;
      const end = this._endOf(this._pieces[this._numPlaced], start);
      if (end === null) return;
      Object.assign(this.list[this._numPlaced], { start, end });
    }
  }

  /** Where a token ends that begins at `start`; null: its text is still to come. */
  _endOf(piece, start) {
    const rest = this.text.slice(start, start + piece.length);
    if (rest === piece) return start + piece.length;
    if (start === 0 && piece.startsWith(" ") && this.text.startsWith(piece.slice(1))) {
      return this.text || this.isDone ? piece.length - 1 : null;
    }
    if (!piece.startsWith(rest)) return start; // a special token, which shows nothing
    return this.isDone ? start + rest.length : null;
  }

  /** The token that shows at this character. */
  indexAt(position) {
    let low = 0;
    let high = this._numPlaced;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.list[middle].end > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** As kept in the browser, and in an exported conversation. */
  toJSON() {
    const tokens = this.list.map((t) => [t.end, t.round, t.place, rounded(t.logprob)]);
    return { rounds: this.rounds, tokens };
  }

  static from(text, kept) {
    const found = new Tokens();
    Object.assign(found, { text, rounds: kept.rounds, isDone: true });
    let start = 0;
    found.list = kept.tokens.map(([end, round, place, logprob]) => {
      const origin = kept.rounds[round].emitted[place].origin;
      const token = { start, end, round, place, origin, logprob };
      start = end;
      return token;
    });
    found._numPlaced = found.list.length;
    return found;
  }
}

function slim(round) {
  const { parents, tokens, chances } = round.proposal;
  return {
    drafter: round.drafter,
    choice: round.choice,
    parents,
    tokens,
    chances: chances.map(rounded),
    accepted: round.accepted,
    emitted: round.emitted.map(({ token, origin }) => ({ token, origin })),
  };
}

const rounded = (value) => (value === null ? null : Number(value.toPrecision(4)));

/** Guesses that were made for one token's place and rejected. */
export function rejectedAt(round, place) {
  const parent = place === 0 ? -1 : round.accepted[place - 1];
  if (parent === undefined) return [];
  const accepted = round.accepted[place];
  return round.parents.flatMap((from, node) => (from === parent && node !== accepted ? [node] : []));
}
