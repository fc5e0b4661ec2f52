// Owners and children of an object as a tree.

import { useEffect, useState } from "preact/hooks";

import { ApiError } from "../../api/client";
import { CLAIMS, JOBS, PODS, REPLICASETS, REVISIONS, SLICES, getObject, typeOf } from "../../api/resources";
import type { KubeObject, OwnerReference, Resource } from "../../api/types";
import { t } from "../../i18n";
import { useLive } from "../../live/watch";
import { objectLink, types } from "../../state";
import { Card, Loading } from "../../ui/basics";
import type { TabProps } from "./index";

/** Types whose objects are created for others. */
const OWNED = [REPLICASETS, REVISIONS, JOBS, PODS, CLAIMS, SLICES];
const DEPTH_MAX = 6;

interface Node {
  type: Resource;
  object: KubeObject;
}

export function RelatedTab({ type, object }: TabProps) {
  const ns = object.metadata.namespace;
  const lists = OWNED.map((resource) => ({ resource, live: useLive(ns === undefined ? undefined : { resource, namespace: ns }).value }));
  const owners = useOwners(object);
  const byOwner = new Map<string, Node[]>();
  for (const { resource, live } of lists) {
    for (const { object: child } of live.items.values()) {
      for (const owner of child.metadata.ownerReferences ?? []) byOwner.set(owner.uid, [...(byOwner.get(owner.uid) ?? []), { type: resource, object: child }]);
    }
  }
  const isLoaded = ns === undefined || lists.every(({ live }) => live.loaded || live.error);
  const children = byOwner.get(object.metadata.uid) ?? [];
  return (
    <>
      <Card title={t("related.owners")} wide>
        {owners === undefined ? <Loading /> : owners.length === 0 ? <p class="quiet">{t("app.none")}</p> : (
          <ul class="tree">{owners.map((owner) => <li key={owner.uid}><OwnerLink owner={owner} ns={ns ?? ""} /></li>)}</ul>
        )}
      </Card>
      <Card title={t("related.children")} wide>
        {children.length === 0 ? (isLoaded ? <p class="quiet">{t("app.none")}</p> : <Loading />) : <ul class="tree"><Branch node={{ type, object }} byOwner={byOwner} depth={0} /></ul>}
      </Card>
    </>
  );
}

function Branch({ node, byOwner, depth }: { node: Node; byOwner: Map<string, Node[]>; depth: number }) {
  const children = depth < DEPTH_MAX ? (byOwner.get(node.object.metadata.uid) ?? []) : [];
  const { name, namespace: ns = "" } = node.object.metadata;
  return (
    <li>
      <a href={objectLink(node.type, ns, name)}>{node.type.kind}/{name}</a>
      {children.length > 0 && <ul>{children.map((child) => <Branch key={child.object.metadata.uid} node={child} byOwner={byOwner} depth={depth + 1} />)}</ul>}
    </li>
  );
}

function OwnerLink({ owner, ns }: { owner: OwnerReference; ns: string }) {
  const type = typeOf(types.value, owner);
  const label = `${owner.kind}/${owner.name}`;
  return type ? <a href={objectLink(type, ns, owner.name)}>{label}</a> : <span>{label}</span>;
}

/** Returns all owners, the nearest first. */
function useOwners(object: KubeObject): OwnerReference[] | undefined {
  const [owners, setOwners] = useState<OwnerReference[]>();
  useEffect(() => {
    const controller = new AbortController();
    const read = async () => {
      const found: OwnerReference[] = [];
      let level: KubeObject[] = [object];
      for (let depth = 0; depth < DEPTH_MAX && level.length > 0; depth += 1) {
        const next: KubeObject[] = [];
        for (const owner of level.flatMap((it) => it.metadata.ownerReferences ?? [])) {
          if (found.some((known) => known.uid === owner.uid)) continue;
          found.push(owner);
          const type = typeOf(types.peek(), owner);
          if (!type) continue;
          try {
            next.push(await getObject(type, object.metadata.namespace ?? "", owner.name, controller.signal));
          } catch (error) {
            // The branch ends at an owner that was deleted or that the user may not read.
            if (!(error instanceof ApiError)) throw error;
          }
        }
        level = next;
      }
      setOwners(found);
    };
    read().catch(() => undefined);
    return () => controller.abort();
  }, [object.metadata.uid]);
  return owners;
}
