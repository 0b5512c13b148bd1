/* tree.c: compares the ordered tree with an array that is searched from end to end. */
#include "../tree.h"

#include "conformance.h"

enum { NODES = 500, STEPS = 200000, SPAN = 1000 };

static sp_node nodes[NODES];
static int present[NODES];

/* height checks a subtree: parents, order, balance. */
static int height(const sp_node *n, const sp_node *parent) {
  if (n == NULL)
    return 0;
  int left = height(n->child[0], n), right = height(n->child[1], n);
  DEMAND(n->parent == parent && n->lean == right - left && n->lean >= -1 && n->lean <= 1);
  DEMAND(n->child[0] == NULL || n->child[0]->major < n->major);
  DEMAND(n->child[1] == NULL || n->child[1]->major > n->major);
  return 1 + (left > right ? left : right);
}

int main(void) {
  sp_tree tree = {NULL};
  uint64_t seed = 1;
  for (int step = 0; step < STEPS; step++) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    int k = (int)(seed >> 33) % NODES;
    /* A node's keys lie in a span of its own, so that the order is known. */
    uint64_t key = (uint64_t)k * SPAN + (seed >> 50) % SPAN;
    if (!present[k]) {
      nodes[k].major = key;
      if (step % 2 == 0)
        sp_tree_insert(&tree, &nodes[k]);
      else
        sp_tree_insert_between(&tree, &nodes[k], sp_tree_at_most(&tree, key, 0), sp_tree_at_least(&tree, key, 0));
    } else if (step % 3 == 0) {
      sp_tree_rekey(&tree, &nodes[k], key, 0);
    } else {
      sp_tree_erase(&tree, &nodes[k]);
    }
    present[k] = !present[k] || step % 3 == 0;
    int at = k, before = k;
    while (at < NODES && !(present[at] && nodes[at].major >= key))
      at++;
    while (before >= 0 && !(present[before] && nodes[before].major <= key))
      before--;
    DEMAND(sp_tree_at_least(&tree, key, 0) == (at == NODES ? NULL : &nodes[at]));
    DEMAND(sp_tree_at_most(&tree, key, 0) == (before < 0 ? NULL : &nodes[before]));
    if (step % 100 == 0)
      height(tree.root, NULL);
  }
  return 0;
}
