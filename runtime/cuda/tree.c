#include "tree.h"

#include <stddef.h>

static int height(const sp_node *n) { return n == NULL ? 0 : n->height; }

static void measure(sp_node *n) {
  int left = height(n->child[0]), right = height(n->child[1]);
  n->height = 1 + (left > right ? left : right);
}

static int before(const sp_node *n, uint64_t major, uint64_t minor) {
  return n->major < major || (n->major == major && n->minor < minor);
}

/* replace makes the parent of old point to new instead. */
static void replace(sp_tree *t, sp_node *old, sp_node *new) {
  sp_node *parent = old->parent;
  if (parent == NULL)
    t->root = new;
  else
    parent->child[parent->child[1] == old] = new;
  if (new != NULL)
    new->parent = parent;
}

/* rotate lifts n's child on the given side over n, and returns it. */
static sp_node *rotate(sp_tree *t, sp_node *n, int side) {
  sp_node *up = n->child[side], *moved = up->child[!side];
  replace(t, n, up);
  n->child[side] = moved;
  if (moved != NULL)
    moved->parent = n;
  up->child[!side] = n;
  n->parent = up;
  measure(n);
  measure(up);
  return up;
}

/* rebalance restores the AVL rule from n up to the root. */
static void rebalance(sp_tree *t, sp_node *n) {
  for (; n != NULL; n = n->parent) {
    int lean = height(n->child[1]) - height(n->child[0]);
    if (lean < -1 || lean > 1) {
      int side = lean > 0;
      sp_node *c = n->child[side];
      if (height(c->child[!side]) > height(c->child[side]))
        rotate(t, c, !side);
      n = rotate(t, n, side);
      continue;
    }
    int was = n->height;
    measure(n);
    if (n->height == was)
      return; /* nothing above can have changed */
  }
}

void sp_tree_insert(sp_tree *t, sp_node *n) {
  sp_node *parent = NULL, **link = &t->root;
  while (*link != NULL) {
    parent = *link;
    link = &parent->child[before(parent, n->major, n->minor)];
  }
  n->parent = parent;
  n->child[0] = n->child[1] = NULL;
  n->height = 1;
  *link = n;
  rebalance(t, parent);
}

void sp_tree_erase(sp_tree *t, sp_node *n) {
  sp_node *from;
  if (n->child[0] == NULL || n->child[1] == NULL) {
    from = n->parent;
    replace(t, n, n->child[0] != NULL ? n->child[0] : n->child[1]);
  } else {
    sp_node *heir = n->child[1];
    while (heir->child[0] != NULL)
      heir = heir->child[0];
    from = heir->parent == n ? heir : heir->parent;
    if (heir->parent != n) {
      replace(t, heir, heir->child[1]);
      heir->child[1] = n->child[1];
      heir->child[1]->parent = heir;
    }
    replace(t, n, heir);
    heir->child[0] = n->child[0];
    heir->child[0]->parent = heir;
    heir->height = n->height;
  }
  rebalance(t, from);
}

sp_node *sp_tree_at_least(const sp_tree *t, uint64_t major, uint64_t minor) {
  sp_node *n = t->root, *found = NULL;
  while (n != NULL) {
    if (before(n, major, minor)) {
      n = n->child[1];
    } else {
      found = n;
      n = n->child[0];
    }
  }
  return found;
}

sp_node *sp_tree_at_most(const sp_tree *t, uint64_t major, uint64_t minor) {
  sp_node *n = t->root, *found = NULL;
  while (n != NULL) {
    if (before(n, major, minor) || (n->major == major && n->minor == minor)) {
      found = n;
      n = n->child[1];
    } else {
      n = n->child[0];
    }
  }
  return found;
}

sp_node *sp_tree_next(const sp_node *n) {
  if (n->child[1] != NULL) {
    sp_node *next = n->child[1];
    while (next->child[0] != NULL)
      next = next->child[0];
    return next;
  }
  while (n->parent != NULL && n->parent->child[1] == n)
    n = n->parent;
  return n->parent;
}
