/* tree.h: an ordered set of nodes that lie in what they order, balanced as an AVL tree
 * (Adelson-Velsky and Landis, 1962): every operation takes O(log n) steps at worst and
 * allocates nothing. Keys are pairs, compared major first. No two keys may be equal. */
#ifndef STPLAN_TREE_H
#define STPLAN_TREE_H

#include <stdint.h>

typedef struct sp_node {
  struct sp_node *parent, *child[2];
  uint64_t major, minor;
  int lean; /* height of the right subtree less that of the left: -1, 0 or 1 */
} sp_node;

typedef struct {
  sp_node *root;
} sp_tree;

void sp_tree_insert(sp_tree *t, sp_node *n);

/* sp_tree_insert_between inserts a node whose neighbours in the order are known;
 * NULL if there is none. It looks at other nodes only to restore the balance. */
void sp_tree_insert_between(sp_tree *t, sp_node *n, sp_node *low, sp_node *high);
void sp_tree_erase(sp_tree *t, sp_node *n);

/* The first node that is not before (major, minor), or NULL. */
sp_node *sp_tree_at_least(const sp_tree *t, uint64_t major, uint64_t minor);

/* The last node that is not after (major, minor), or NULL. */
sp_node *sp_tree_at_most(const sp_tree *t, uint64_t major, uint64_t minor);

/* sp_tree_rekey changes a node's key. If the node keeps its place in the order,
 * that is all. */
void sp_tree_rekey(sp_tree *t, sp_node *n, uint64_t major, uint64_t minor);

/* The node after n, or NULL. */
sp_node *sp_tree_next(const sp_node *n);

#endif
