"""Acting and learning, for every algorithm the same lines: `Trainer.act` and `Trainer.update` are pure functions.

One learner is one seed. Seeds train together under `jax.vmap`; nothing of a seed depends on its neighbours.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Bool, Float, Int

from hpml.marl.advantage import Scale, discounted, follow, new_scale, normalised
from hpml.marl.algorithm import Algorithm
from hpml.marl.env import Observation, Spec
from hpml.marl.networks import Actor, Critic, init_actors, init_critic
from hpml.marl.optimiser import actor_optimiser, agent_norms, critic_optimiser
from hpml.marl.policy import Played, allowed, chosen
from hpml.marl.projection import after_looks, at_rest, between_looks, projection_logs
from hpml.marl.rollout import Batch, Rollout, Seen, cut, schedule, see, take, with_book
from hpml.marl.settings import Settings
from hpml.marl.surrogate import joint_field
from hpml.plugin.treatment import HodgeState

Tree = Any


class Learner(eqx.Module):
    """All that training carries from one update to the next; a checkpoint of it is enough to go on.

    - `values`, `surprises`, `sums`: running scales of returns, of advantages and of discounted sums of rewards;
      `running`: those sums so far.
    - `key`: the seed's own; every draw comes from it and `updates`.
    """

    actors: Actor
    critic: Critic
    projection: Any
    actor_state: Any
    critic_state: Any
    values: Scale
    surprises: Scale
    sums: Scale
    running: Float[Array, "E agents"]
    updates: Int[Array, ""]
    key: Any


class FieldSample(eqx.Module):
    """The stacked update field at one point, as gradients of losses from two independent halves: leaves (half, ...)."""

    point: Actor
    halves: Actor


class Report(eqx.Module):
    """What happened in an update: numbers to log, (agents,) or (), and the field before its first step.

    `finite` is False where a loss, a gradient or a parameter is not a number: the update must not be kept.
    """

    logs: dict[str, Array]
    field: FieldSample
    finite: Bool[Array, ""]


class Trainer:
    """An algorithm on an environment with its settings. Holds no data; `Learner` does.

    `projection` is an optax transformation that takes `field_fn`, `halves` and `hold`, or None; it changes the actors'
    update and nothing else.
    """

    def __init__(
        self,
        spec: Spec,
        algorithm: Algorithm,
        settings: Settings,
        projection: optax.GradientTransformationExtraArgs | None = None,
    ) -> None:
        if algorithm.sequential and settings.share:
            name = type(algorithm).__name__
            raise ValueError(f"{name} moves agents one after another: it needs an actor for each, so leave share off.")
        self.spec, self.algorithm, self.settings, self.projection = spec, algorithm, settings, projection
        self.actor_optimiser = actor_optimiser(settings)
        self.critic_optimiser = critic_optimiser(settings)

    def init(self, key: Array) -> Learner:
        """A seed's first learner."""
        spec, settings, algorithm = self.spec, self.settings, self.algorithm
        actor_key, critic_key, key = jax.random.split(key, 3)
        actors = init_actors(actor_key, spec, settings)
        critic = init_critic(critic_key, spec, settings, algorithm.central, algorithm.counterfactual)
        return Learner(
            actors,
            critic,
            None if self.projection is None else at_rest(self.projection.init(actors)),
            self.actor_optimiser.init(actors),
            self.critic_optimiser.init(critic),
            new_scale(spec.agents),
            new_scale(spec.agents),
            new_scale(spec.agents),
            jnp.zeros((settings.environments, spec.agents)),
            jnp.zeros((), jnp.int32),
            key,
        )

    def memory(self, environments: int) -> Any:
        """What actors know before anything happened, (E, agents, units); None without a memory."""
        units = self.settings.memory
        return jnp.zeros((environments, self.spec.agents, units), jnp.float32) if units else None

    def act(
        self, actors: Actor, observation: Observation, memory: Any, starts: Bool[Array, " E"], keys: Array
    ) -> Played:
        """Draw everybody's actions in E environments; `keys` has one for each."""
        seen = _agents_first(see(observation, self.spec, self.settings), 1)
        known = None if memory is None else jnp.moveaxis(memory, 1, 0)
        starts = jnp.broadcast_to(starts[:, None], (len(starts), 1))
        share = self.settings.share
        run = jax.vmap(lambda actor, *rest: actor(*rest, starts), in_axes=(None if share else 0, 0, 0, 0))
        steps = jax.tree.map(lambda x: x[:, :, None], seen)
        logits, known = run(actors, steps.vector, steps.patches, known)
        log_policy = jnp.moveaxis(allowed(logits[:, :, 0], seen.mask), 0, 1)
        actions = jax.vmap(jax.random.categorical)(keys, log_policy).astype(jnp.int32)
        return Played(actions, chosen(log_policy, actions), None if known is None else jnp.moveaxis(known, 0, 1))

    def update(self, learner: Learner, rollout: Rollout, book: Any = None) -> tuple[Learner, Report]:
        """Learn from a rollout: all passes over all its minibatches.

        With a `book` of squares (`sprites.py`) the rollout's pictures are places in it, (T + 1, E, agents, cells).
        """
        settings, algorithm = self.settings, self.algorithm
        key = jax.random.fold_in(learner.key, learner.updates)
        rewards, sums, running = self._rewards(learner, rollout)
        rollout = eqx.tree_at(lambda r: r.rewards, rollout, rewards)
        batch, last = (with_book(part, book) for part in self._batch(rollout))
        passes_key, assess_key = jax.random.split(key)
        advantages, returns, foretold = algorithm.assess(
            learner.critic, learner.values, learner.actors, batch, last, rollout, settings, assess_key
        )
        values = follow(learner.values, returns) if settings.normalise_values else learner.values
        targets = (returns - values.centre) / values.deviation
        surprises = follow(learner.surprises, advantages)
        if settings.normalise_advantages:
            advantages = normalised(advantages, surprises.deviation)
        batch = eqx.tree_at(lambda b: (b.advantages, b.targets), batch, cut((advantages, targets), settings))
        scales = (values, surprises, sums, running)
        learner = eqx.tree_at(lambda x: (x.values, x.surprises, x.sums, x.running), learner, scales)
        before = learner.actors
        learner, halves, logs = self._passes(learner, batch, passes_key)
        logs["explained"] = _explained(returns, foretold)
        finite = jnp.all(
            jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((learner.actors, learner.critic, logs))])
        )
        if isinstance(learner.projection, HodgeState):
            logs |= projection_logs(learner.projection)
        learner = eqx.tree_at(
            lambda x: (x.updates, x.projection),
            learner,
            (learner.updates + 1, at_rest(learner.projection)),
            is_leaf=lambda x: x is None,
        )
        return learner, Report(logs, FieldSample(before, halves), finite)

    def _rewards(self, learner: Learner, rollout: Rollout) -> tuple[Array, Scale, Array]:
        """Rewards as the learner wants them; the rollout's own are the environment's."""
        rewards = rollout.rewards * self.settings.reward_scale
        if not self.settings.normalise_rewards:
            return rewards, learner.sums, learner.running
        running, totals = discounted(rewards, rollout.starts[1:], learner.running, self.settings.discount)
        sums = follow(learner.sums, totals)
        return rewards / sums.deviation, sums, running

    def _batch(self, rollout: Rollout) -> tuple[Batch, Batch]:
        """The inputs of the networks in the learner's layout, and those of the last observation."""
        T = self.settings.rollout

        def inputs(times: slice, actions: Array, log_probs: Array) -> Batch:
            seen = see(jax.tree.map(lambda x: x[times], rollout.observation), self.spec, self.settings)
            starts = jnp.broadcast_to(rollout.starts[times, :, None], actions.shape)
            memory = None
            if rollout.memory is not None:
                # What an actor knew before an episode began is forgotten, so the critic must not see it either.
                memory = jnp.where(starts[..., None], 0.0, rollout.memory[times])
            zeros = jnp.zeros_like(log_probs)
            return Batch(seen, starts, memory, actions, log_probs, zeros, zeros)

        batch = inputs(slice(T), rollout.actions, rollout.log_probs)
        last = inputs(slice(T, T + 1), jnp.zeros_like(rollout.actions[:1]), jnp.zeros_like(rollout.log_probs[:1]))
        # (1, E, agents, ...) to (half, agents, chunks, steps, ...): one half, and each environment a chunk of one step
        return cut(batch, self.settings), jax.tree.map(lambda x: jnp.moveaxis(x, 2, 1)[:, :, :, None], last)

    def _passes(self, learner: Learner, batch: Batch, key: Array) -> tuple[Learner, Tree, dict[str, Array]]:
        """Every pass and minibatch; the halves of the very first gradient, and logs averaged over the steps."""
        settings = self.settings
        passes, count = schedule(settings, self.spec.agents, self.algorithm.reuse)
        order_key, agents_key = jax.random.split(key)

        def step(learner: Learner, chosen_chunks: Array, hold: bool) -> tuple[Learner, Tree, dict[str, Array]]:
            part = batch if count == 1 else take(batch, chosen_chunks)
            return self._step(learner, part, agents_key, hold)

        def later(learner: Learner, chosen_chunks: Array) -> tuple[Learner, dict[str, Array]]:
            learner, _, logs = step(learner, chosen_chunks, True)
            return learner, logs

        chunks = batch.actions.shape[2]
        shuffle = lambda k: jax.random.permutation(k, chunks).reshape(count, -1)  # noqa: E731
        keys = jax.random.split(order_key, (passes, 2))
        order = jnp.moveaxis(jax.vmap(jax.vmap(shuffle))(keys), 1, 2).reshape(passes * count, 2, -1)
        # The first step is written out: what only it needs goes through no loop.
        learner, halves, first = step(learner, order[0], False)
        if len(order) == 1:
            return learner, halves, first
        looked, at_projection = learner.projection, lambda x: x.projection
        learner = eqx.tree_at(at_projection, learner, between_looks(looked), is_leaf=lambda x: x is None)
        learner, rest = jax.lax.scan(later, learner, order[1:])
        learner = eqx.tree_at(
            at_projection, learner, after_looks(looked, learner.projection), is_leaf=lambda x: x is None
        )
        return learner, halves, jax.tree.map(lambda x, y: (x + jnp.sum(y, 0)) / len(order), first, rest)

    def _step(self, learner: Learner, batch: Batch, key: Array, hold: bool) -> tuple[Learner, Tree, dict[str, Array]]:
        """One optimiser step of actors and critic on a minibatch; the projection may `hold` what it has."""
        settings, algorithm = self.settings, self.algorithm
        actors, critic = learner.actors, learner.critic

        def move(agent: Any, gradient: Tree) -> Tree:
            """Where the optimiser alone would take one agent."""
            slice_of = lambda tree: jax.tree.map(lambda x: x[agent][None] if jnp.ndim(x) else x, tree)  # noqa: E731
            one, state = slice_of(actors), slice_of(learner.actor_state)
            updates, _ = self.actor_optimiser.update(jax.tree.map(lambda g: g[None], gradient), state, one)
            return jax.tree.map(lambda x: x[0], optax.apply_updates(one, updates))

        halves, logs = algorithm.gradients(actors, batch, settings, move, key)
        gradients = jax.tree.map(lambda g: 0.5 * (g[0] + g[1]), halves)
        logs = jax.tree.map(lambda x: jnp.mean(x, 0), logs)
        raw, projection = gradients, learner.projection
        lengths: Any = None
        if self.projection is not None:
            field_fn = joint_field(algorithm, batch, settings)
            gradients, projection = self.projection.update(
                gradients,
                projection,
                actors,
                field_fn=field_fn,
                halves=lambda: tuple(jax.tree.map(lambda g, i=i: g[i], halves) for i in range(2)),
                hold=hold,
            )
            lengths = projection.lengths if isinstance(projection, HodgeState) else None
        # From the projection where it has them: what it changed then need not be written to be measured.
        if lengths is None and not settings.share:
            lengths = agent_norms(raw), agent_norms(gradients)
        logs["gradient"] = optax.global_norm(raw) if lengths is None else lengths[0]
        norms = None if lengths is None else lengths[1]
        updates, actor_state = self.actor_optimiser.update(gradients, learner.actor_state, actors, norms=norms)
        actors = optax.apply_updates(actors, updates)

        loss, slope = jax.value_and_grad(algorithm.critic_loss)(critic, batch, settings)
        updates, critic_state = self.critic_optimiser.update(slope, learner.critic_state, critic)
        critic = optax.apply_updates(critic, updates)
        logs["critic"] = loss
        learner = eqx.tree_at(
            lambda x: (x.actors, x.critic, x.projection, x.actor_state, x.critic_state),
            learner,
            (actors, critic, projection, actor_state, critic_state),
            is_leaf=lambda x: x is None,
        )
        return learner, halves, logs


def _agents_first(seen: Seen, axis: int) -> Seen:
    return jax.tree.map(lambda x: jnp.moveaxis(x, axis, 0), seen)


def _explained(returns: Array, foretold: Array) -> Array:
    """The share of the returns' variance that the critic foretold, for each agent."""
    left = jnp.var(returns - foretold, axis=(0, 1))
    return 1.0 - left / jnp.maximum(jnp.var(returns, axis=(0, 1)), 1e-8)
