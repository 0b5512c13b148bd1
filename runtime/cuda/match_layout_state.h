/* match_layout_state.h: a layout, private to match_layout*.c. */
#ifndef STPLAN_MATCH_LAYOUT_STATE_H
#define STPLAN_MATCH_LAYOUT_STATE_H

#include "match_layout.h"
#include "match_skyline.h"
#include "match_stack.h"
#include "sizes.h"

/* Bytes. The places that are found anew begin at a multiple of it behind what stays, so that they share no granule
 * with that. */
#define SP_LAYOUT_APART (UINT64_C(2) << 20)

/* Steps, places and what these lie on, SP_LAYOUT_WORK of which may be gone through for each request of the
 * run. Finding the places of a whole pass again takes 3 to 5 for each of its requests with first
 * fit, which looks at SP_LAYOUT_LOOKS_FOR blocks in the time of one place. It bounds the time over a run:
 * one that asks for larger and larger keys, and nothing else, would have a segment found anew
 * each time. */
enum { SP_LAYOUT_WORK = 8, SP_LAYOUT_LOOKS_FOR = 16 };

/* sp_place_anew is a step whose place is found anew, and what it lies on: `floor`, and the places
 * beneath[first .. end). */
typedef struct {
  uint64_t floor;
  uint32_t step, first, end;
} sp_place_anew;

/* Whether the places of a segment are to be found again at its next key: since a law has changed,
 * or once laws hold, as they were found for the recorded sizes. */
enum { SP_STALE = 1, SP_STALE_UNTIL_LAWS_HOLD = 2 };

/* sp_spot is where a step lies. */
typedef struct {
  uint64_t offset, size;
} sp_spot;

struct sp_layout {
  sp_laws laws;
  sp_spot *anew; /* of each step, while the run keeps to what was recorded; NULL from then on */
  uint64_t *own; /* bytes of the plan's own places, of each step */
  uint64_t base; /* first offset of what is found anew: behind most of the plan's own places that stay or cross the seam */
  sp_island *islands; /* the others of these, in whole granules */
  uint32_t island_count;
  uint64_t island_bytes;
  sp_occupied *occupied; /* NULL until it is heard */
  void *occupied_by;
  uint64_t arena_bytes; /* the plan's */
  int roomy;      /* the plan was made for larger sizes than were recorded */
  int stays;      /* so little varies that the plan's own places are not left */
  int begun;      /* a key of a body has been asked for */
  int waits;      /* the last key may be another step's request: the plan's places are left if what follows confirms it */
  int smaller;    /* a key in the prologue was asked for smaller than recorded */
  uint64_t share; /* the largest key since, of the largest recorded, of SP_SHARE_ALL */
  int held;       /* laws have held, since places are found anew */
  int64_t credit; /* work that may be done; below 0, what was done ahead */
  sp_place_anew *places; /* by segment, then by the plan's address */
  uint32_t count;
  uint32_t *places_of; /* of each segment: its first place; one more at the end */
  uint32_t *beneath;
  uint64_t beneath_count, beneath_room;
  uint64_t room, highest; /* end of the addresses, and of the highest place so far */
  uint32_t current;       /* the segment that the run is in, and its pass */
  uint64_t current_pass;
  uint64_t forecast;      /* bytes that this segment takes, if its key is larger than any before; 0 if not */
  uint64_t *known;        /* the largest reading of each segment that the run has gone beyond */
  sp_stack *stacks;       /* of each segment */
  sp_block *blocks;       /* of each place, for first fit */
  uint64_t *live;         /* bytes live at each step, if every step were there, for the largest reading of its segment */
  uint64_t *change;       /* of the bytes live at each step, zero between calls */
  uint64_t *fixed;        /* bytes live at each step that are found once */
  uint64_t *kept;         /* and those that stay or cross the seam, at the plan's places */
  uint64_t peak;          /* the most bytes that the recording had allocated */
  uint64_t *at_once;      /* of each segment: the most bytes live at a time in its part, if every step were there with its recorded size */
  uint8_t *stale;         /* of each segment */
};

/* sp_layout_stretches says whether a step's place is found anew in each pass: it is large, and lives within its segment. */
static inline int sp_layout_stretches(const sp_laws *laws, const sp_step *step, uint64_t at) {
  return step->placed && step->end != SP_NOWHERE && step->most > SP_KEY_LEAST && step->end <= sp_laws_segment(laws, at)->end;
}

/* sp_layout_clear is where `size` bytes may lie from an offset on: clear of the islands. */
static inline uint64_t sp_layout_clear(const sp_layout *l, uint64_t offset, uint64_t size) {
  return sp_clear_at(l->islands, l->island_count, offset, size);
}

/* sp_layout_place gives a step a place if it lies in the room. Otherwise it has none. */
void sp_layout_place(const sp_layout *l, sp_step *step, uint64_t offset);

/* sp_layout_settle finds the places of a segment from its sizes; sp_layout_work is what that takes but for first fit. */
void sp_layout_settle(sp_layout *l, sp_sequence *s, uint32_t segment);
uint64_t sp_layout_work(const sp_layout *l, uint32_t segment);

/* sp_layout_note_recorded finds what each part takes with the sizes recorded. */
void sp_layout_note_recorded(sp_layout *l, const sp_sequence *s);

/* sp_layout_foresee forecasts what the segment takes that the run is in, once laws begin to hold: its key comes but once
 * in a pass, and in the first pass of a run that is before anything has shown that laws hold. */
void sp_layout_foresee(sp_layout *l, const sp_sequence *s);

/* sp_layout_as_recorded is `bytes` that are live in a segment if every step is there, less what no recorded pass had of them:
 * none has all steps of its part, each with its largest size. */
uint64_t sp_layout_as_recorded(const sp_layout *l, uint32_t segment, uint64_t bytes);

/* sp_layout_find_base finds where places that are found anew begin, and the islands above that. sp_layout_put finds all
 * places for the sizes recorded. 0 without host memory. */
int sp_layout_find_base(sp_layout *l, const sp_sequence *s, const sp_plan_device *plan);
int sp_layout_put(sp_layout *l, sp_sequence *s, const sp_plan_device *plan);

#endif
