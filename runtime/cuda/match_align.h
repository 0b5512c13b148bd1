/* match_align.h: which step a request is, if data decide what is allocated.
 *
 * With experts, hardly a request has a recorded size, and a layer allocates more or fewer times than in any recorded pass.
 * So the run is aligned with the plan: of all ways in which its requests can be steps in their order, with some left over
 * on either side, the one that costs least says which step the last request is. That is the alignment of two
 * sequences by dynamic programming (Needleman and Wunsch, A general method applicable to the search for
 * similarities in the amino acid sequence of two proteins, 1970), of which only the last row is kept, and only as far as the
 * run may be (a beam). */
#ifndef STPLAN_MATCH_ALIGN_H
#define STPLAN_MATCH_ALIGN_H

#include "match_sequence.h"

typedef struct sp_align sp_align;

/* sp_align_new aligns with a plan, from its first step on. NULL without host memory. */
sp_align *sp_align_new(const sp_sequence *plan);
void sp_align_free(sp_align *a);

/* sp_align_begin begins anew: step `at` of a part is expected next. */
void sp_align_begin(sp_align *a, uint64_t at, uint64_t part);

/* sp_align_next is the step that a request is, and *part its part; SP_NOWHERE if it is none. It may be on the plan's streams
 * for which on_stream has a 1. */
uint64_t sp_align_next(sp_align *a, uint64_t requested, const uint8_t *on_stream, uint64_t *part);

/* sp_align_lost says whether hardly any of the last requests was a step: the run is elsewhere. */
int sp_align_lost(const sp_align *a);

#endif
