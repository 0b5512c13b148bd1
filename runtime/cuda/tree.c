#include "tree.h"

#include <stddef.h>

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

/* rotate lifts n's child on the given side over n. The caller sets what they lean. */
static void rotate(sp_tree *t, sp_node *n, int side) {
  sp_node *up = n->child[side], *moved = up->child[!side];
  replace(t, n, up);
  n->child[side] = moved;
  if (moved != NULL)
    moved->parent = n;
  up->child[!side] = n;
  n->parent = up;
}

/* upright restores the AVL rule at n, which leans by two, and returns the node
 * that takes its place. The subtree is as high as before if that node leans,
 * and lower by one otherwise. */
static sp_node *upright(sp_tree *t, sp_node *n) {
  int side = n->lean > 0, heavy = side ? 1 : -1;
  sp_node *c = n->child[side];
  if (c->lean != -heavy) {
    rotate(t, n, side);
    n->lean = c->lean == 0 ? heavy : 0;
    c->lean = c->lean == 0 ? -heavy : 0;
    return c;
  }
  sp_node *g = c->child[!side];
  rotate(t, c, !side);
  rotate(t, n, side);
  n->lean = g->lean == heavy ? -heavy : 0;
  c->lean = g->lean == -heavy ? heavy : 0;
  g->lean = 0;
  return g;
}

/* grown follows a subtree c that has become higher by one, up to the ancestor
 * where that makes no difference. */
static void grown(sp_tree *t, sp_node *c) {
  for (sp_node *p = c->parent; p != NULL; c = p, p = p->parent) {
    p->lean += p->child[1] == c ? 1 : -1;
    if (p->lean == 0)
      return;
    if (p->lean == 2 || p->lean == -2) {
      upright(t, p);
      return;
    }
  }
}

/* shrunk follows the subtree on one side of p, which has become lower by one. */
static void shrunk(sp_tree *t, sp_node *p, int side) {
  while (p != NULL) {
    p->lean += side ? -1 : 1;
    if (p->lean == 2 || p->lean == -2)
      p = upright(t, p);
    if (p->lean != 0)
      return;
    sp_node *above = p->parent;
    side = above != NULL && above->child[1] == p;
    p = above;
  }
}

/* hang puts a new leaf at a link that has no node. */
static void hang(sp_tree *t, sp_node *n, sp_node *parent, sp_node **link) {
  n->parent = parent;
  n->child[0] = n->child[1] = NULL;
  n->lean = 0;
  *link = n;
  grown(t, n);
}

void sp_tree_insert(sp_tree *t, sp_node *n) {
  sp_node *parent = NULL, **link = &t->root;
  while (*link != NULL) {
    parent = *link;
    link = &parent->child[before(parent, n->major, n->minor)];
  }
  hang(t, n, parent, link);
}

/* Of two neighbours in the order one is below the other in the tree, and has no
 * child on the side of the other one. */
void sp_tree_insert_between(sp_tree *t, sp_node *n, sp_node *low, sp_node *high) {
  if (high != NULL && high->child[0] == NULL)
    hang(t, n, high, &high->child[0]);
  else
    hang(t, n, low, low == NULL ? &t->root : &low->child[1]);
}

void sp_tree_erase(sp_tree *t, sp_node *n) {
  if (n->child[0] == NULL || n->child[1] == NULL) {
    sp_node *parent = n->parent;
    int side = parent != NULL && parent->child[1] == n;
    replace(t, n, n->child[0] != NULL ? n->child[0] : n->child[1]);
    shrunk(t, parent, side);
    return;
  }
  sp_node *heir = n->child[1];
  while (heir->child[0] != NULL)
    heir = heir->child[0];
  sp_node *from = heir->parent == n ? heir : heir->parent;
  if (from != heir) {
    replace(t, heir, heir->child[1]);
    heir->child[1] = n->child[1];
    heir->child[1]->parent = heir;
  }
  replace(t, n, heir);
  heir->child[0] = n->child[0];
  heir->child[0]->parent = heir;
  heir->lean = n->lean;
  shrunk(t, from, from == heir);
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

/* beside is the node after n, or before it, or NULL. */
static sp_node *beside(const sp_node *n, int after) {
  if (n->child[after] != NULL) {
    sp_node *found = n->child[after];
    while (found->child[!after] != NULL)
      found = found->child[!after];
    return found;
  }
  while (n->parent != NULL && n->parent->child[after] == n)
    n = n->parent;
  return n->parent;
}

sp_node *sp_tree_next(const sp_node *n) { return beside(n, 1); }

void sp_tree_rekey(sp_tree *t, sp_node *n, uint64_t major, uint64_t minor) {
  int up = before(n, major, minor);
  const sp_node *other = beside(n, up);
  int keeps = other == NULL || before(other, major, minor) != up;
  if (!keeps)
    sp_tree_erase(t, n);
  n->major = major;
  n->minor = minor;
  if (!keeps)
    sp_tree_insert(t, n);
}
