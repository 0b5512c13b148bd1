/* match_layout.h: where the steps of a plan lie, by the sizes of this pass.
 *
 * A plan is packed for the largest sizes that were recorded. What matters of it for other
 * sizes is the order of the places by address. So, if large sizes vary, the places are found
 * anew: in a segment (match_laws.h) each place lies as low as the places beneath it allow, in the
 * plan's order. When a segment's key is requested, its sizes follow from the laws, and its places
 * from the sizes, in one pass over them.
 *
 *      |   varies, in the plan's order    |  <- found anew in each segment
 *      |----------------------------------|
 *      |  crosses segments, or is small   |  <- found once
 *      |==================================|
 *      |  stays, or crosses the seam      |  <- the plan's own places
 *      0 ---------------------------------'
 *
 * The plan's own places are the best ones for what was recorded. They are all served until a key is
 * asked for that is larger than recorded, or, in the prologue, another one. From then on only
 * what stays and what crosses the seam has them, and all else lies above those, where its own places were
 * and their memory is. A little of what stays may lie higher, in islands, and if blocks lie there that are at no
 * place of their own, what is found anew begins above them. So a pass takes as much of the addresses as it needs, whatever its sizes.
 * A plan that was made for larger sizes than were recorded has room: its places are found anew
 * from the first request on. The places of a plan of whose bytes little varies stay as they are. */
#ifndef STPLAN_MATCH_LAYOUT_H
#define STPLAN_MATCH_LAYOUT_H

#include "match_laws.h"
#include "plan.h"

typedef struct sp_layout sp_layout;

/* sp_layout_make lays out the steps for the sizes recorded; until they are needed they have the
 * plan's places. *layout is NULL if they always do. 0 without host memory. */
int sp_layout_make(sp_layout **layout, sp_sequence *s, const sp_plan_device *plan);
/* sp_layout_restore gives the steps the plan's places again. */
void sp_layout_restore(sp_sequence *s, const sp_plan_device *plan);
void sp_layout_drop(sp_layout *l);

/* sp_layout_laws is the laws of a layout; NULL if that is NULL. */
sp_laws *sp_layout_laws(sp_layout *l);

/* sp_layout_note is told of a step's request, and may change the places of its segment's
 * steps, this one's included. */
void sp_layout_note(sp_layout *l, sp_sequence *s, uint64_t step, uint64_t requested, uint64_t pass);

/* sp_layout_doubt is told that the run has left the sequence of requests. If next to nothing has confirmed what the last key
 * read, it was no key: an evaluation begins with a block that looks like one. */
void sp_layout_doubt(sp_layout *l);

/* sp_layout_forecast is the most bytes that the segment takes that the run is in, if its quantity is larger than any
 * before: 0 otherwise, and if laws do not hold, lately or behind the key. Of a plan with room they do until the run has shown otherwise. */
uint64_t sp_layout_forecast(const sp_layout *l);

/* sp_layout_under_way says whether a run that is before a step, with so many bytes allocated, has had enough of its segment for
 * memory to be added for what is forecast, and has allocated what the laws say of that. */
int sp_layout_under_way(const sp_layout *l, uint64_t at, uint64_t allocated);

/* The unit of sp_layout_share. */
enum { SP_SHARE_ALL = 1024 };

/* sp_layout_share is how large the run's batches have been until now of the largest recorded, of SP_SHARE_ALL, by their keys, if a key in
 * the prologue was smaller than recorded; SP_SHARE_ALL if none was. Below half it is 0: keys have a part that follows no length, and say too
 * much of short ones. */
uint64_t sp_layout_share(const sp_layout *l);

/* sp_layout_hear tells whom to ask where other blocks lie. Without, there are none. */
void sp_layout_hear(sp_layout *l, sp_occupied *occupied, void *self);

/* sp_layout_bottom and sp_layout_top are where places that do not stay begin and end, the highest
 * that there have been, and sp_layout_room the bytes of addresses that they may lie in. */
uint64_t sp_layout_bottom(const sp_layout *l);
uint64_t sp_layout_top(const sp_layout *l);
uint64_t sp_layout_room(const sp_layout *l);

#endif
