#include "match_hypotheses.h"

/* Requests in a row that a hypothesis has to fit before the pointer jumps to
 * it. Fewer make wrong jumps, which take memory that the right requests need;
 * more leave the run off plan for longer. */
enum { CONFIRMED = 3 };

/* The same for a hypothesis that is more than 2 * AHEAD steps from the pointer:
 * there are many such places, and some fit a few requests by chance. */
enum { CONFIRMED_FAR = 16 };

/* The same for one that was raised at the beginning of a body, if the run is beyond the prologue: after something that the plan does not
 * know, that is where a program goes on. With 10 and more the first blocks of a step lay in the way of large places: 1.6 to 2 times of what is
 * reserved moved in a run of twice the batch size, for 0.3 with 6 to 9. With 5 and fewer that run lost its plan. */
enum { CONFIRMED_START = 8 };

/* Steps after the pointer at which hypotheses are raised. It bounds the time of
 * a request that is adrift. */
enum { AHEAD = 256 };

/* Steps. A hypothesis this close behind the pointer goes on where the run was. With 2 the plans of 58 recordings serve the same. */
enum { CLOSE = 8 };

/* Steps before the pointer at which they are raised: fewer, as requests are
 * left out more often than they are repeated. */
enum { BEHIND = 32 };

/* Hypotheses that steps ahead of the pointer may take, so that some are left for the rest. */
enum { NEAR_MOST = SP_HYPOTHESES * 3 / 4 };

/* Places of a gram that are raised: before the pointer, from the pointer on, and from the first step on. */
enum { GRAMS = 4 };

sp_hypothesis *sp_hypotheses_at(sp_hypotheses *h, uint64_t at) {
  for (int i = 0; i < h->count; i++)
    if (h->list[i].at == at)
      return &h->list[i];
  return NULL;
}

/* suppose is the hypothesis that the run is at a step, a new one if there was
 * none. NULL if there are too many. */
static sp_hypothesis *suppose(sp_hypotheses *h, uint64_t at, uint64_t part, uint64_t requested) {
  sp_hypothesis *known = sp_hypotheses_at(h, at);
  if (known != NULL)
    return known;
  if (h->count == SP_HYPOTHESES)
    return NULL;
  h->list[h->count] = (sp_hypothesis){.at = at, .part = part, .scale = sp_step_scale(&h->plan->steps[at], requested), .fitted = 1};
  return &h->list[h->count++];
}

/* lawful says whether a request has about the size that a law says of a step in this pass, if that is of a length that was
 * not recorded: then hardly any request has a recorded size. A run that was lost in such a batch, at
 * a sort whose buffers differ from some length on, was not found again. */
static int lawful(const sp_hypotheses *h, uint64_t at, uint64_t requested) {
  uint64_t said = h->laws == NULL ? 0 : sp_laws_new_size(h->laws, h->plan->steps, at, h->pass);
  return said > 0 && sp_laws_near(said, requested);
}

/* by_reading says whether a request has about the size that a law says for the key that a hypothesis has read. The pointer has
 * not read it: it is elsewhere. */
static int by_reading(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested) {
  if (g->reading == 0 || sp_laws_segment(h->laws, g->at)->key != g->key)
    return 0;
  uint64_t said = sp_laws_size_by(h->laws, g->at, g->reading);
  return said > 0 && sp_laws_near(said, requested);
}

/* by_law is likewise, or for the key that the run has read. */
static int by_law(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested) { return lawful(h, g->at, requested) || by_reading(h, g, requested); }

/* reads says whether a request may be the key of a segment, at a step. */
static int reads(const sp_hypotheses *h, uint64_t at, uint64_t requested) {
  return h->laws != NULL && sp_laws_segment(h->laws, at)->key == at && sp_step_may_fit(&h->plan->steps[at], requested);
}

/* opens says whether a request may be one of the small ones before a key, which have the length that begins with it. */
static int opens(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested) {
  return g->reading != 0 && requested <= SP_KEY_LEAST && sp_step_may_fit(&h->plan->steps[g->at], requested);
}

/* counts says whether both a request and the step of a hypothesis that has read a key are tiny: a batch of more samples has another number of
 * lengths or indices, which follows no size that laws know. */
static int counts(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested) {
  return g->reading != 0 && requested <= SP_TINY && h->plan->steps[g->at].most <= SP_TINY;
}

/* read_key notes a request that may be the key of a segment. The hypothesis may be NULL, if there was no room for it. */
static void read_key(const sp_hypotheses *h, sp_hypothesis *g, uint64_t requested) {
  if (g == NULL || !reads(h, g->at, requested))
    return;
  g->key = g->at;
  g->reading = requested;
}

int sp_hypotheses_go_on(const sp_hypotheses *h, uint64_t pointer) {
  for (int i = 0; i < h->count; i++) {
    const sp_hypothesis *g = &h->list[i];
    if (g->told && (lawful(h, g->at, h->before) || (pointer != SP_NOWHERE && g->at >= pointer && g->at - pointer <= CLOSE)))
      return 1;
  }
  return 0;
}

/* tells says whether a request that a hypothesis explains speaks for it. One of a law's size does not if it repeats the
 * one before it: in a batch of a length that was not recorded, that fits anywhere. Nor does a key, or a small one before
 * the next key: they may have any length. */
static int tells(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested) {
  if (sp_step_fits(&h->plan->steps[g->at], requested))
    return 1;
  if ((opens(h, g, requested) || counts(h, g, requested)) && !by_reading(h, g, requested))
    return 0;
  return g->reading != requested && (requested != h->before || !by_law(h, g, requested));
}

/* explains says whether a request fits the next step of a hypothesis. */
static int explains(const sp_hypotheses *h, const sp_hypothesis *g, uint64_t requested, int one_length) {
  const sp_step *s = &h->plan->steps[g->at];
  if (by_law(h, g, requested) || reads(h, g->at, requested) || opens(h, g, requested) || counts(h, g, requested))
    return 1;
  if (g->ratio != 0)
    return sp_step_fits(s, requested) || sp_step_in_ratio(s, g->ratio, requested);
  if (!one_length)
    return sp_step_fits(s, requested);
  int64_t scale = sp_step_scale(s, requested);
  if (!sp_step_fits(s, requested) && (scale == SP_NO_SCALE || g->scale == SP_NO_SCALE || !sp_step_may_fit(s, requested)))
    return 0;
  return sp_scales_agree(scale, g->scale);
}

void sp_hypotheses_advance(sp_hypotheses *h, uint64_t requested, uint64_t pointer, int one_length) {
  int kept = 0;
  for (int i = 0; i < h->count; i++) {
    sp_hypothesis g = h->list[i];
    g.at = sp_sequence_next(h->plan, g.at, &g.part);
    if (g.at == SP_NOWHERE || g.at == pointer || !explains(h, &g, requested, one_length))
      continue; /* one that is at the pointer says nothing new */
    int64_t scale = sp_step_scale(&h->plan->steps[g.at], requested);
    if (scale != SP_NO_SCALE)
      g.scale = scale;
    read_key(h, &g, requested);
    g.told = tells(h, &g, requested);
    g.fitted += g.told;
    h->list[kept++] = g;
  }
  h->count = kept;
  h->before = requested;
}

/* raise_ratio raises the pointer's step, with the ratio of the request to what was recorded there. */
static void raise_ratio(sp_hypotheses *h, uint64_t pointer, uint64_t part, uint64_t requested) {
  uint64_t ratio = pointer == SP_NOWHERE ? 0 : sp_step_ratio(&h->plan->steps[pointer], requested);
  sp_hypothesis *g = ratio == 0 ? NULL : suppose(h, pointer, part, requested);
  if (g != NULL)
    g->ratio = ratio;
}

/* raise_tiny raises the pointer's step if both it and the request are tiny (counts). */
static void raise_tiny(sp_hypotheses *h, uint64_t pointer, uint64_t part, uint64_t requested) {
  if (pointer != SP_NOWHERE && requested <= SP_TINY && h->plan->steps[pointer].most <= SP_TINY)
    suppose(h, pointer, part, requested);
}

/* raise_key raises the key of the segment that the pointer is in, wherever that lies: the run may have been taken for further on than it
 * is. */
static void raise_key(sp_hypotheses *h, uint64_t pointer, uint64_t part, uint64_t requested) {
  uint64_t key = h->laws == NULL || pointer == SP_NOWHERE ? SP_NOWHERE : sp_laws_segment(h->laws, pointer)->key;
  if (key != SP_NOWHERE && reads(h, key, requested))
    read_key(h, suppose(h, key, part, requested), requested);
}

/* may_be_at says whether a request has a size of a step, recorded or by a law. */
static int may_be_at(const sp_hypotheses *h, uint64_t at, uint64_t requested) {
  return sp_step_fits(&h->plan->steps[at], requested) || lawful(h, at, requested);
}

/* raise_near raises steps around the pointer, nearest first. */
static void raise_near(sp_hypotheses *h, uint64_t pointer, uint64_t part, uint64_t requested) {
  uint64_t at = pointer, on = part;
  for (int i = 0; i < AHEAD && at != SP_NOWHERE && h->count < NEAR_MOST; i++) {
    if (reads(h, at, requested))
      read_key(h, suppose(h, at, on, requested), requested);
    else if (i > 0 && may_be_at(h, at, requested))
      suppose(h, at, on, requested);
    at = sp_sequence_next(h->plan, at, &on);
  }
  uint64_t first = h->plan->parts[part].first;
  at = pointer == SP_NOWHERE ? h->plan->count : pointer;
  for (int i = 0; i < BEHIND && at > first && h->count < SP_HYPOTHESES; i++)
    if (may_be_at(h, --at, requested))
      suppose(h, at, part, requested);
}

void sp_hypotheses_raise_starts(sp_hypotheses *h, uint64_t requested) {
  for (uint64_t p = 1; p < h->plan->part_count && h->count < SP_HYPOTHESES; p++) {
    uint64_t at = h->plan->parts[p].first;
    if (sp_step_fits(&h->plan->steps[at], requested) || reads(h, at, requested)) {
      sp_hypothesis *g = suppose(h, at, p, requested); /* there is room for one */
      g->begins = 1;
      read_key(h, g, requested);
    }
  }
}

/* raise_gram raises the place of a gram of this number, if it has the hash and the request fits there. 0 if it has
 * not. */
static int raise_gram(sp_hypotheses *h, uint64_t number, uint64_t hash, uint64_t requested) {
  if (number >= h->plan->gram_count || h->plan->grams[number].hash != hash)
    return 0;
  uint64_t at = h->plan->grams[number].at;
  if (sp_step_fits(&h->plan->steps[at], requested))
    suppose(h, at, sp_sequence_part(h->plan, at), requested);
  return 1;
}

/* raise_grams raises steps where the last requests occur in a row: the last ones before
 * the pointer, the next ones after it, and the first ones. A loop that goes on for more rounds than were recorded is
 * found in its last round, and what comes behind the loop from there. Without the last ones before the pointer it was found in its
 * first rounds, or nowhere. */
static void raise_grams(sp_hypotheses *h, uint64_t pointer, const sp_recent *recent, int prologue) {
  if (recent->seen < SP_GRAM)
    return;
  uint64_t first = prologue ? 0 : h->plan->parts[0].end, at = pointer == SP_NOWHERE || pointer < first ? first : pointer;
  uint64_t hash = sp_gram_hash(recent->list), requested = recent->list[SP_GRAM - 1];
  uint64_t from = sp_sequence_grams(h->plan, hash, first), next = sp_sequence_grams(h->plan, hash, at);
  for (uint64_t g = next; g > from && g + GRAMS > next; g--)
    raise_gram(h, g - 1, hash, requested);
  for (uint64_t g = next; g < next + GRAMS && raise_gram(h, g, hash, requested); g++)
    ;
  for (uint64_t g = from; g < from + GRAMS && raise_gram(h, g, hash, requested); g++)
    ;
}

void sp_hypotheses_raise(sp_hypotheses *h, uint64_t pointer, uint64_t part, const sp_recent *recent, int prologue) {
  uint64_t requested = recent->list[SP_GRAM - 1];
  raise_ratio(h, pointer, part, requested);
  raise_tiny(h, pointer, part, requested);
  sp_hypotheses_raise_starts(h, requested); /* first: what is near may be more than there is room for */
  raise_key(h, pointer, part, requested);
  raise_near(h, pointer, part, requested);
  raise_grams(h, pointer, recent, prologue);
}

void sp_hypotheses_fork(sp_hypotheses *h, uint64_t at, uint64_t part, int body, uint64_t requested) {
  sp_hypothesis *g = suppose(h, at, part, requested);
  if (g == NULL)
    return;
  g->fork = 1;
  g->body = body;
  read_key(h, g, requested);
}

void sp_hypotheses_discount(sp_hypotheses *h, int requests) {
  for (int i = 0; i < h->count; i++)
    h->list[i].fitted = h->list[i].fitted > requests ? h->list[i].fitted - requests : 1;
}

/* distance is how far a step is from the pointer. Requests are left out more often
 * than they are repeated, so a step behind the pointer counts as AHEAD / BEHIND times
 * as far. The next body is ahead, although its steps may have smaller numbers. */
static uint64_t distance(const sp_hypotheses *h, uint64_t pointer, uint64_t part, uint64_t at) {
  if (pointer == SP_NOWHERE)
    return (h->plan->count - at) * (AHEAD / BEHIND);
  if (at >= pointer)
    return at - pointer;
  uint64_t behind = (pointer - at) * (AHEAD / BEHIND), end = h->plan->parts[part].end;
  uint64_t seam = sp_sequence_next(h->plan, end - 1, &part);
  if (seam == SP_NOWHERE || at < seam || at >= h->plan->parts[part].end)
    return behind;
  uint64_t ahead = end - pointer + at - seam;
  return ahead < behind ? ahead : behind;
}

const sp_hypothesis *sp_hypotheses_best(const sp_hypotheses *h, uint64_t pointer, uint64_t part) {
  const sp_hypothesis *best = NULL;
  for (int i = 0; i < h->count; i++) {
    const sp_hypothesis *g = &h->list[i];
    int far = g->begins && part > 0 ? CONFIRMED_START : CONFIRMED_FAR;
    if (g->fitted < (distance(h, pointer, part, g->at) <= 2 * AHEAD ? CONFIRMED : far))
      continue;
    if (best == NULL || g->fitted > best->fitted ||
        (g->fitted == best->fitted && distance(h, pointer, part, g->at) < distance(h, pointer, part, best->at)))
      best = g;
  }
  return best;
}
